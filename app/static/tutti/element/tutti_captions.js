import { AbortedError, UsageError } from "../index.js";
import { CaptionsView } from "./captions_view.js";
import { checkEvent } from "./events.js";
import { RoomReader } from "./room_reader.js";
import { Speaker } from "./speaker.js";
import { Transcript } from "./transcript.js";
const TEXTS = {
    latest: "Jump to latest",
    gap: "(The audio until {time} is lost.)",
    states: {
        asking: "Waiting for the microphone…",
        connecting: "Connecting…",
        listening: "Listening",
        waiting: "Waiting for the speaker…",
        reconnecting: "Connection lost. Reconnecting…",
        finishing: "Finishing…",
        ended: "The captions have ended.",
        muted: "The microphone is muted.",
        suspended: "The browser has paused the microphone. Tap or click this page to continue.",
        interrupted: "The system uses the microphone for something else, such as a phone call.",
        disconnected: "The microphone is gone. Plug it in again, or another one.",
    },
};
const PLACES = ["server", "room"];
const LOOKS = ["lines", "size", "language", "show", "labels", "times", "clear-after"];
const Base = (globalThis.HTMLElement ?? class {
});
export class TuttiCaptions extends Base {
    static { this.observedAttributes = [...PLACES, ...LOOKS]; }
    #transcript = new Transcript();
    #view;
    #warned = new Set();
    #texts = TEXTS;
    #state = "idle";
    #microphone;
    #reader;
    #speaker;
    #sessions;
    #clockS = 0;
    #isPlanned = false;
    constructor() {
        super();
        this.#view = new CaptionsView(this.attachShadow({ mode: "open" }), this.#transcript, this.#options);
        this.#showStatus();
        if (Object.hasOwn(this, "texts")) {
            const { texts } = this;
            Reflect.deleteProperty(this, "texts");
            this.texts = texts;
        }
    }
    get captions() {
        return this.#transcript;
    }
    get state() {
        return this.#state;
    }
    get texts() {
        return this.#texts;
    }
    set texts(texts) {
        this.#texts = { ...this.#texts, ...texts, states: { ...this.#texts.states, ...texts.states } };
        this.#view.render(this.#options);
        this.#showStatus();
    }
    apply(event) {
        this.#apply(checkEvent(event), true);
    }
    clear() {
        this.#transcript.clear();
        this.#view.clear();
    }
    async start() {
        if (this.hasAttribute("room")) {
            throw new UsageError("shows_room", "start: expected an element without the attribute room, which is for readers");
        }
        if (this.#sessions === undefined) {
            let onOpen = () => { };
            const opened = new Promise((resolve) => {
                onOpen = resolve;
            });
            this.#sessions = { opened, ended: this.#speak(onOpen) };
        }
        await this.#sessions.opened;
    }
    async stop() {
        await Promise.resolve();
        if (this.#state === "asking" || this.#state === "connecting") {
            this.#speaker?.close();
        }
        else if (this.#state !== "finishing") {
            await this.#speaker?.finish();
        }
        await this.#sessions?.ended;
    }
    connectedCallback() {
        this.#plan();
    }
    disconnectedCallback() {
        this.#plan();
    }
    adoptedCallback() {
        this.#view.adoptStyle();
    }
    attributeChangedCallback(name, before, after) {
        if (before === after) {
            return;
        }
        if (LOOKS.includes(name)) {
            this.#view.render(this.#options);
        }
        else {
            this.#leaveRoom();
            this.#plan();
        }
    }
    #plan() {
        if (this.#isPlanned) {
            return;
        }
        this.#isPlanned = true;
        queueMicrotask(() => {
            this.#isPlanned = false;
            if (!this.isConnected) {
                this.#speaker?.close();
                this.#leaveRoom();
            }
            else if (this.#reader === undefined && this.hasAttribute("room")) {
                this.#read(this.getAttribute("room") ?? "");
            }
        });
    }
    #leaveRoom() {
        if (this.#reader !== undefined) {
            this.#reader.close();
            this.#reader = undefined;
            this.#show("idle");
        }
    }
    #read(room) {
        this.clear();
        this.#speaker?.close();
        try {
            this.#reader = new RoomReader(this.#server, room, {
                onEvent: (event, isHistory) => this.#apply(event, !isHistory),
                onState: (state) => this.#show(state),
                onError: (error) => this.#dispatch("tutti-error", { error }),
            });
        }
        catch (error) {
            this.#fail(error);
        }
    }
    async #speak(onOpen) {
        let speaker;
        let reason;
        await Promise.resolve();
        try {
            speaker = new Speaker(this.#speakerOptions, {
                onEvent: (event) => this.#apply(event, true),
                onState: (state) => this.#show(state),
                onMicrophone: (state) => {
                    this.#show(this.#state, state);
                },
            });
            this.#speaker = speaker;
            const session = await speaker.open();
            this.#dispatch("tutti-start", { session });
            onOpen();
            await speaker.run(session);
        }
        catch (error) {
            reason = error;
        }
        this.#clockS = speaker?.untilS ?? this.#clockS;
        this.#speaker = undefined;
        this.#sessions = undefined;
        this.#update(this.#transcript.endSession(), false);
        if (reason === undefined || reason instanceof AbortedError) {
            this.#microphone = undefined;
            this.#show("idle");
        }
        else {
            this.#fail(reason);
        }
        onOpen();
        this.#dispatch("tutti-end", null);
    }
    #apply(event, isSpoken) {
        if (event.type === "room" && event.resumed === false) {
            this.clear();
        }
        this.#update(this.#transcript.apply(event), isSpoken);
        if (event.type === "reconnecting") {
            this.#show("reconnecting");
        }
        else if (event.type === "resumed") {
            this.#show(this.#speaker?.state ?? "idle");
        }
        else if (event.type === "warning" || event.type === "error") {
            this.#dispatch("tutti-warning", { code: event.code, message: event.message });
        }
        else if (event.type === "room") {
            this.#dispatch("tutti-start", { room: event });
        }
        else if (event.type === "ended") {
            this.#update(this.#transcript.endSession(), false);
            this.#dispatch("tutti-end", null);
        }
    }
    #update(changes, isSpoken) {
        this.#view.update(changes, isSpoken);
        for (const { line, kind } of changes) {
            if (kind === "final" || kind === "translated") {
                this.#dispatch("tutti-line", { line });
            }
        }
    }
    #show(state, microphone = this.#microphone) {
        if (state !== this.#state || microphone !== this.#microphone) {
            this.#state = state;
            this.#microphone = microphone;
            this.#showStatus();
            this.#dispatch("tutti-state", microphone === undefined ? { state } : { state, microphone });
        }
    }
    #showStatus() {
        const { states } = this.#texts;
        const trouble = this.#microphone === undefined ? undefined : states[this.#microphone];
        const isListening = this.#state === "live" && this.#speaker !== undefined;
        this.#view.showStatus(trouble ?? states[isListening ? "listening" : this.#state] ?? "");
    }
    #fail(error) {
        this.#microphone = undefined;
        this.#show("failed");
        const text = error instanceof Error ? error.message : String(error);
        this.#view.showStatus(this.#texts.states.failed ?? `${text.charAt(0).toUpperCase()}${text.slice(1)}.`);
        this.#dispatch("tutti-error", { error });
    }
    #dispatch(name, detail) {
        this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
    }
    get #server() {
        const server = this.getAttribute("server") ?? globalThis.location.origin;
        try {
            return new URL(server, globalThis.location.href);
        }
        catch (error) {
            throw new UsageError("bad_url", `server: expected the address of a server, got ${JSON.stringify(server)}`, error);
        }
    }
    get #speakerOptions() {
        const { apiKey } = this;
        const spoken = this.getAttribute("spoken");
        const { language, show } = this.#options;
        const translation = language === undefined || show === "original" ? {} : { translate: [language] };
        return {
            server: this.#server,
            apiKey: typeof apiKey === "function" ? apiKey : () => apiKey,
            start: {
                ...(spoken === null ? {} : { language: spoken }),
                ...(this.hasAttribute("speakers") ? { speakers: this.#mostSpeakers } : {}),
                ...translation,
                ...this.startOptions,
            },
            workletUrl: this.getAttribute("worklet") ?? undefined,
            fromS: this.#clockS,
        };
    }
    get #mostSpeakers() {
        const max = this.getAttribute("speakers") === "" ? undefined : this.#positive("speakers");
        return max === undefined ? {} : { max };
    }
    get #options() {
        return {
            rows: this.#positive("lines"),
            sizePx: this.#positive("size"),
            clearAfterS: this.#positive("clear-after"),
            language: this.getAttribute("language") || undefined,
            show: this.#shown,
            labels: this.getAttribute("labels")?.split(",").map((label) => label.trim()) ?? [],
            hasTimes: this.hasAttribute("times"),
            latest: this.#texts.latest,
            gap: this.#texts.gap,
        };
    }
    get #shown() {
        const value = this.getAttribute("show") ?? "both";
        if (value !== "both" && value !== "original" && value !== "translation") {
            this.#warn("show", "original, translation or both", value);
            return "both";
        }
        return value;
    }
    #positive(name) {
        const value = this.getAttribute(name);
        if (value === null || Number(value) > 0) {
            return value === null ? undefined : Number(value);
        }
        this.#warn(name, "a positive number", value);
        return undefined;
    }
    #warn(name, expected, got) {
        const warning = `<tutti-captions>: ${name}: expected ${expected}, got ${JSON.stringify(got)}`;
        if (!this.#warned.has(warning)) {
            this.#warned.add(warning);
            console.warn(warning);
        }
    }
}
