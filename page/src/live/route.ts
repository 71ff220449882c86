// Where the page is, behind the `#` of its URL: #/VIEW/PART?span=12h&name=value. Each state of the page has a URL.
import { SPANS, type Span } from "../api/types";
import { Store } from "./store";

export const VIEWS = ["job", "learning", "data", "state", "checkpoints", "serving", "log"] as const;
export type View = (typeof VIEWS)[number];

export interface Route {
    view: View;
    part: string; // "": none
    span: Span;
    query: URLSearchParams; // the rest
}

function decode(text: string): string {
    try {
        return decodeURIComponent(text);
    } catch {
        return text;
    }
}

export function parse(hash: string): Route {
    const text = hash.replace(/^#\/?/, "");
    const mark = text.indexOf("?");
    const [first = "", second = ""] = (mark < 0 ? text : text.slice(0, mark)).split("/");
    const query = new URLSearchParams(mark < 0 ? "" : text.slice(mark + 1));
    const span = SPANS.find((one) => one === query.get("span")) ?? "1h";
    query.delete("span");
    return { view: VIEWS.find((one) => one === first) ?? "job", part: decode(second), span, query };
}

/* The URL of a state; without `query` none of the current one is kept, but the span is. */
export function href(to: { view: View; part?: string; span?: Span; query?: Record<string, string> }): string {
    const query = new URLSearchParams();
    const span = to.span ?? route.value.span;
    if (span !== "1h") query.set("span", span);
    for (const [name, value] of Object.entries(to.query ?? {})) if (value !== "") query.set(name, value);
    const rest = query.toString();
    return `#/${to.view}${to.part ? "/" + encodeURIComponent(to.part) : ""}${rest ? "?" + rest : ""}`;
}

export const route = new Store<Route>(parse(location.hash));
window.addEventListener("hashchange", () => route.set(parse(location.hash)));

/* The state that is shown, with some of it changed. */
export function changed(change: { part?: string; span?: Span; query?: Record<string, string> }): string {
    const now = route.value;
    const query = { ...Object.fromEntries(now.query), ...change.query };
    return href({ view: now.view, part: change.part ?? now.part, span: change.span ?? now.span, query });
}

export function go(url: string): void {
    location.hash = url;
}
