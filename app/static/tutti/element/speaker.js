/** Captions of the microphone: one session from `open` until everything that was said is final. */
import { connect, openMicrophone, } from "../index.js";
import { explain } from "./refusal.js";
/** How often a session without audio tells the server that it is still there. Servers wait for a minute by default. */
const KEEPALIVE_MS = 15_000;
/** The states of the microphone in which not even silence comes from it. */
const SILENT = ["suspended", "interrupted", "disconnected"];
/** A microphone and its session. */
export class Speaker {
    #options;
    #listener;
    #controller;
    /** Audio from before the session is open: a few seconds at most, as opening has a timeout. */
    #early;
    #microphone;
    #session;
    #keepalive;
    /** Why the microphone ended the session. */
    #error;
    constructor(options, listener) {
        this.state = "asking";
        this.#controller = new AbortController();
        /** Audio from before the session is open: a few seconds at most, as opening has a timeout. */
        this.#early = [];
        this.#options = options;
        this.#listener = listener;
        this.untilS = options.fromS;
    }
    /**
     * Opens microphone and session, and resolves when they are open.
     *
     * @throws TuttiError: the reason, with nothing left open; AbortedError after `close`.
     */
    async open() {
        const { server, apiKey, start, workletUrl, fromS } = this.#options;
        const { signal } = this.#controller;
        let key;
        try {
            this.#become("asking");
            const microphone = await openMicrophone({ signal, workletUrl, keepScreenOn: true });
            this.#microphone = microphone;
            microphone.start((samples) => this.#send(samples), (error) => this.#onLost(error), (state) => this.#onMicrophone(state));
            this.#become("connecting");
            this.#session = await connect(server, {
                signal,
                apiKey: async () => (key = await apiKey()),
                start: {
                    ...start,
                    audio: { encoding: "pcm_s16le", sample_rate: microphone.sampleRate, channels: 1 },
                    ...(fromS > 0 ? { resume: { from_s: fromS } } : {}),
                },
            });
            this.#listener.onEvent(this.#session.started);
            this.#early.splice(0).forEach((samples) => this.#send(samples));
            this.#become("live");
            return this.#session;
        }
        catch (error) {
            this.close();
            throw this.#error ?? (await explain(error, server, key));
        }
    }
    /**
     * Delivers the events of the open session, until its end.
     *
     * @throws TuttiError: why it did not end as it should.
     */
    async run(session) {
        try {
            for await (const event of session) {
                this.#listener.onEvent(event);
            }
        }
        catch (error) {
            throw this.#error ?? error;
        }
        finally {
            this.close();
        }
        if (this.#error !== undefined) {
            throw this.#error;
        }
    }
    /** Sends what the microphone still has, and lets the session end when all of it is final. */
    async finish() {
        this.#become("finishing");
        await this.#microphone?.flush();
        this.#microphone?.stop();
        clearInterval(this.#keepalive);
        if (this.#session?.isOpen === true) {
            this.#session.stop();
        }
    }
    /** Ends all at once. */
    close() {
        clearInterval(this.#keepalive);
        this.#controller.abort();
        this.#microphone?.stop();
        this.#session?.close();
    }
    #become(state) {
        this.state = state;
        this.#listener.onState(state);
    }
    #send(samples) {
        if (this.#session === undefined) {
            this.#early.push(samples);
        }
        else if (this.#session.isOpen) {
            try {
                this.#session.send(samples);
                this.untilS += samples.length / (this.#microphone?.sampleRate ?? Infinity);
            }
            catch (error) {
                this.#error = error;
                this.close();
            }
        }
    }
    /** The user has withdrawn the permission. What was said before becomes final. */
    #onLost(error) {
        this.#error = error;
        if (this.#session === undefined) {
            this.close();
        }
        else {
            void this.finish();
        }
    }
    /** While no audio comes: makes what was spoken final, and keeps the session open. */
    #onMicrophone(state) {
        clearInterval(this.#keepalive);
        if (state === "stopped") {
            return; // The end of the session says it.
        }
        if (SILENT.includes(state)) {
            if (this.#session?.isOpen === true) {
                this.#session.flush();
            }
            this.#keepalive = setInterval(() => {
                if (this.#session?.isOpen === true) {
                    this.#session.keepalive();
                }
            }, KEEPALIVE_MS);
        }
        this.#listener.onMicrophone(state);
    }
}
