// Reads one answer of the control API. The token, if the listener wants one, is in this module's memory alone: never in
// a URL, a cookie, or storage.

const ANSWER_BYTES_MAX = 64 << 20;
const PATIENCE_MS = 20_000;

export type Answer<T> =
    | { is: "here"; value: T }
    | { is: "absent" } // this leat has no such route
    | { is: "locked" } // a token is wanted
    | { is: "failed"; status: number; text: string }; // status 0: no answer

let token = "";

export function setToken(text: string): void {
    token = text.trim();
}

export function hasToken(): boolean {
    return token !== "";
}

/* Where a route is; params: those that are undefined are left out. */
export function urlOf(route: string, params: Record<string, string | string[] | undefined> = {}): string {
    const query: string[] = [];
    for (const [name, value] of Object.entries(params))
        for (const one of value === undefined ? [] : Array.isArray(value) ? value : [value])
            query.push(`${name}=${encodeURIComponent(one)}`);
    return new URL(`api/v1/${route}${query.length ? "?" + query.join("&") : ""}`, document.baseURI.split("#")[0])
        .href;
}

export function ask(url: string, signal: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = token === "" ? {} : { authorization: `Bearer ${token}` };
    return fetch(url, { headers, signal, cache: "no-store", credentials: "omit", redirect: "error" });
}

/* The text of an answer, at most `bytes` long. Throws where it is longer. */
async function textOf(response: Response, bytes: number): Promise<string> {
    const reader = response.body?.getReader();
    const decoder = new TextDecoder();
    let text = "";
    let length = 0;
    while (reader !== undefined) {
        const { done, value } = await reader.read();
        if (done) break;
        length += value.byteLength;
        if (length > bytes) {
            await reader.cancel();
            throw new Error(`the answer has more than ${bytes} bytes`);
        }
        text += decoder.decode(value, { stream: true });
    }
    return text + decoder.decode();
}

/* What leat says of a path that it does not know names the paths that it has. */
function isUnknownRoute(status: number, text: string): boolean {
    return status === 404 && text.includes("/healthz");
}

export async function get<T>(url: string, signal?: AbortSignal): Promise<Answer<T>> {
    const own = new AbortController();
    const timer = setTimeout(() => own.abort(), PATIENCE_MS);
    const abort = () => own.abort();
    signal?.addEventListener("abort", abort);
    try {
        const response = await ask(url, own.signal);
        const text = await textOf(response, ANSWER_BYTES_MAX);
        if (response.status === 200) return { is: "here", value: JSON.parse(text) as T };
        if (response.status === 401) return { is: "locked" };
        if (isUnknownRoute(response.status, text)) return { is: "absent" };
        return { is: "failed", status: response.status, text: text.slice(0, 2000).trim() };
    } catch (error) {
        const said = error instanceof Error ? error.message : String(error);
        return { is: "failed", status: 0, text: own.signal.aborted ? "no answer in time" : said };
    } finally {
        clearTimeout(timer);
        signal?.removeEventListener("abort", abort); // the caller's signal lives on for many answers
    }
}
