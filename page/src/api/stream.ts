// One stream for all tabs of a browser. The tab that holds a lock reads /api/v1/events and tells the others by a
// channel; when it goes, the next one in line takes over. The reader connects again by itself, later and later. A leat
// without /api/v1/events is asked for its figures each second.
import { ask, get, urlOf } from "./client";
import { readEvents } from "./events";
import type { Figures, Hello, LogLine } from "./types";

export type Phase = "connecting" | "live" | "reconnecting" | "locked";

export type Message =
    | { is: "hello"; hello: Hello }
    | { is: "figures"; figures: Figures }
    | { is: "log"; line: LogLine }
    | { is: "phase"; phase: Phase; since: number; why: string };

type Told = Message | { is: "ask" };

const SILENCE_MS = 20_000; // the server says something every 15 s
const POLL_MS = 1000;
const LOCKED = "a token is wanted";
const BACKOFF_MS = [300, 600, 1200, 2500, 5000, 8000];

class Stream {
    private channel: BroadcastChannel | null = null;
    private last = new Map<string, Message>(); // what a tab that comes later must know
    private isLeader = false;
    private wake: (() => void) | null = null;
    private control = new AbortController();
    private readonly name = "leat " + new URL(".", document.baseURI).pathname;

    constructor(private readonly take: (message: Message) => void) {}

    start(): void {
        if (typeof BroadcastChannel !== "undefined") {
            this.channel = new BroadcastChannel(this.name);
            this.channel.onmessage = (event: MessageEvent<Told>) => this.hear(event.data);
        }
        document.addEventListener("visibilitychange", () => this.retry());
        window.addEventListener("online", () => this.retry());
        if (this.channel === null || navigator.locks === undefined) {
            void this.lead();
            return;
        }
        this.channel.postMessage({ is: "ask" } satisfies Told);
        this.stand(false);
    }

    /* Waits for the lock, or takes it from the tab that has it, which then waits for it. */
    private stand(steal: boolean): void {
        const lost = () => {
            this.isLeader = false;
            this.control.abort();
            this.wake?.();
            this.stand(false);
        };
        navigator.locks.request(this.name, { steal }, () => this.lead()).catch(lost);
    }

    /* The tab has got a token: it reads itself, because the tab that read until now may have none. */
    unlock(): void {
        if (!this.isLeader && navigator.locks !== undefined) this.stand(true);
        else this.retry();
    }

    /* Does not wait any longer before the next try. */
    retry(): void {
        this.wake?.();
    }

    private hear(told: Told): void {
        if (!this.isLeader && told.is !== "ask") this.take(told);
        if (this.isLeader && told.is === "ask") for (const one of this.last.values()) this.channel?.postMessage(one);
    }

    private tell(message: Message): void {
        if (message.is !== "log") this.last.set(message.is, message);
        this.take(message);
        this.channel?.postMessage(message);
    }

    private sleep(ms: number): Promise<void> {
        return new Promise((resolve) => {
            const timer = setTimeout(resolve, ms);
            this.wake = () => {
                clearTimeout(timer);
                resolve();
            };
        });
    }

    private async lead(): Promise<void> {
        this.isLeader = true;
        let failures = 0;
        let since = Date.now();
        while (this.isLeader) {
            let isGood = false;
            let why = "the connection ended";
            try {
                await this.follow(() => {
                    if (!isGood) this.tell({ is: "phase", phase: "live", since: Date.now(), why: "" });
                    isGood = true;
                });
            } catch (error) {
                why = error instanceof Error ? error.message : String(error);
            }
            if (!this.isLeader) return;
            failures = isGood ? 0 : failures + 1;
            if (isGood) since = Date.now();
            this.tell({ is: "phase", phase: why === LOCKED ? "locked" : "reconnecting", since, why });
            const wait = BACKOFF_MS[Math.min(failures, BACKOFF_MS.length - 1)] ?? POLL_MS;
            await this.sleep(wait * (0.8 + 0.4 * Math.random()));
        }
    }

    /* Returns or throws when the stream has ended. good: to be called once something came. */
    private async follow(good: () => void): Promise<void> {
        const control = (this.control = new AbortController());
        let timer = setTimeout(() => control.abort(), SILENCE_MS);
        const alive = () => {
            clearTimeout(timer);
            timer = setTimeout(() => control.abort(), SILENCE_MS);
        };
        try {
            const response = await ask(urlOf("events"), control.signal);
            if (response.status === 404) {
                await response.body?.cancel();
                clearTimeout(timer);
                return await this.poll(good);
            }
            if (response.status === 401) throw new Error(LOCKED);
            if (response.status !== 200) throw new Error(`the server answers ${response.status}`);
            await readEvents(response, (event) => this.event(event.event, event.data, good), alive);
        } finally {
            clearTimeout(timer);
            control.abort();
        }
    }

    private event(name: string, data: string, good: () => void): void {
        if (name === "hello") this.tell({ is: "hello", hello: JSON.parse(data) as Hello });
        else if (name === "figures") this.tell({ is: "figures", figures: JSON.parse(data) as Figures });
        else if (name === "log") this.tell({ is: "log", line: JSON.parse(data) as LogLine });
        if (name === "hello" || name === "figures") good();
    }

    private async poll(good: () => void): Promise<void> {
        const url = urlOf("figures");
        for (let seconds = Infinity; this.isLeader; ) {
            const answer = await get<Figures>(url);
            if (answer.is === "locked") throw new Error(LOCKED);
            if (answer.is !== "here") throw new Error(answer.is === "failed" ? answer.text : "there are no figures");
            const { job, fingerprint } = answer.value;
            const now = Date.now();
            if (answer.value.seconds < seconds)
                this.tell({ is: "hello", hello: { job, fingerprint, life: String(now), now } });
            seconds = answer.value.seconds;
            this.tell({ is: "figures", figures: { ...answer.value, now } });
            good();
            await this.sleep(POLL_MS);
        }
    }
}

let stream: Stream | null = null;

/* Begins to call `take`; once for a page. */
export function startStream(take: (message: Message) => void): void {
    stream = new Stream(take);
    stream.start();
}

/* After the token was set. */
export function unlockStream(): void {
    stream?.unlock();
}
