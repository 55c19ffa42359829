// Live captions of the phone's microphone. The words that may still change are grey.

import { useEffect, useRef, useState } from "react";
import { AppState, Button, PermissionsAndroid, Platform, SafeAreaView, ScrollView, Text } from "react-native";
import LiveAudioStream from "react-native-live-audio-stream";
import { Captions, record } from "tutti-asr-client";
import { fromLiveAudioStream } from "tutti-asr-client/react-native";
import { API_KEY, SERVER } from "./server.js";

const STATES = {
  live: "listening",
  interrupted: "interrupted, for example by a phone call",
  disconnected: "the microphone is gone",
};

/** iOS asks by itself when the recorder starts. */
async function mayRecord() {
  const { RECORD_AUDIO } = PermissionsAndroid.PERMISSIONS;
  return Platform.OS !== "android" || (await PermissionsAndroid.request(RECORD_AUDIO)) === "granted";
}

export default function App() {
  const [status, setStatus] = useState("stopped");
  const [shown, setShown] = useState({ lines: [], open: [] });
  const running = useRef(null);

  useEffect(() => {
    const subscription = AppState.addEventListener("change", (state) => {
      const { source, session } = running.current ?? {};
      if (state === "active" && session !== undefined) {
        // In the background, the system may have stopped the recorder, and closed the connection without a word.
        if (source.state !== "live") {
          source.restart();
        }
        session.reconnect();
      }
    });
    return () => {
      subscription.remove();
      running.current?.controller.abort();
    };
  }, []);

  async function start() {
    if (running.current !== null) {
      return;
    }
    const controller = new AbortController();
    const { signal } = controller;
    running.current = { controller };
    setStatus("connecting");
    try {
      if (!(await mayRecord())) {
        setStatus("the microphone is not allowed: see the settings of the phone");
        return;
      }
      const source = fromLiveAudioStream(LiveAudioStream);
      const session = await record(SERVER, source, { signal, apiKey: API_KEY, start: { language: "en" } });
      running.current = { controller, source, session };
      setStatus(STATES.live);
      const captions = new Captions();
      for await (const event of session) {
        captions.apply(event);
        if (event.type === "source" && STATES[event.state] !== undefined) {
          setStatus(STATES[event.state]);
        } else if (event.type === "reconnecting") {
          setStatus("no connection: what you say is kept");
        } else if (event.type === "resumed") {
          setStatus(event.gap === null ? STATES.live : `${event.gap[1] - event.gap[0]} s of speech are lost`);
        }
        setShown({ ...captions.channels.get(0) });
      }
      setStatus("stopped");
    } catch (error) {
      setStatus(signal.aborted ? "stopped" : String(error));
    } finally {
      running.current = null;
    }
  }

  function stop() {
    const { controller, session } = running.current ?? {};
    if (session !== undefined) {
      session.stop();
    } else {
      controller?.abort();
    }
  }

  const { lines = [], open = [] } = shown;
  return (
    <SafeAreaView style={{ flex: 1 }}>
      <Text accessibilityLiveRegion="polite">{status}</Text>
      <Button title="Start" onPress={start} />
      <Button title="Stop" onPress={stop} />
      <ScrollView>
        {lines.map((line) => (
          <Text key={line.utterance}>{line.text}</Text>
        ))}
        {open.map((line) => (
          <Text key={line.utterance}>
            {line.segments + line.stable}
            <Text style={{ color: "grey" }}>{line.tail}</Text>
          </Text>
        ))}
      </ScrollView>
    </SafeAreaView>
  );
}
