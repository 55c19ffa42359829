import { connect, openMicrophone, } from "../index.js";
import { explain } from "./refusal.js";
const KEEPALIVE_MS = 15_000;
const SILENT = ["suspended", "interrupted", "disconnected"];
export class Speaker {
    #options;
    #listener;
    #controller;
    #early;
    #microphone;
    #session;
    #keepalive;
    #error;
    constructor(options, listener) {
        this.state = "asking";
        this.#controller = new AbortController();
        this.#early = [];
        this.#options = options;
        this.#listener = listener;
        this.untilS = options.fromS;
    }
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
    async finish() {
        this.#become("finishing");
        await this.#microphone?.flush();
        this.#microphone?.stop();
        clearInterval(this.#keepalive);
        if (this.#session?.isOpen === true) {
            this.#session.stop();
        }
    }
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
    #onLost(error) {
        this.#error = error;
        if (this.#session === undefined) {
            this.close();
        }
        else {
            void this.finish();
        }
    }
    #onMicrophone(state) {
        clearInterval(this.#keepalive);
        if (state === "stopped") {
            return;
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
