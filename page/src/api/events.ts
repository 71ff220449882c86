// Reads a stream of events (text/event-stream) from an answer of fetch, which can send the token; EventSource cannot.

export interface StreamEvent {
    event: string;
    data: string;
}

const EVENT_CHARACTERS_MAX = 16 << 20;

/* Takes pieces of text as they arrive, and gives the events that they complete. */
export class EventReader {
    private rest = "";
    private event = "";
    private data: string[] = [];

    push(piece: string): StreamEvent[] {
        const found: StreamEvent[] = [];
        const lines = (this.rest + piece).split("\n");
        this.rest = lines.pop() ?? "";
        if (this.rest.length > EVENT_CHARACTERS_MAX) throw new Error("an event is too long");
        for (const line of lines) this.take(line.endsWith("\r") ? line.slice(0, -1) : line, found);
        return found;
    }

    private take(line: string, found: StreamEvent[]): void {
        if (line === "") {
            if (this.data.length > 0) found.push({ event: this.event || "message", data: this.data.join("\n") });
            this.event = "";
            this.data = [];
            return;
        }
        const colon = line.indexOf(":");
        const name = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (name === "event") this.event = value;
        else if (name === "data") this.data.push(value);
    }
}

/* Calls `take` for each event until the stream ends; `alive` for each piece, events or not. */
export async function readEvents(response: Response, take: (event: StreamEvent) => void, alive: () => void) {
    const reader = response.body?.getReader();
    const decoder = new TextDecoder();
    const events = new EventReader();
    while (reader !== undefined) {
        const { done, value } = await reader.read();
        if (done) return;
        alive();
        for (const event of events.push(decoder.decode(value, { stream: true }))) take(event);
    }
}
