// Above every view: which job, whether it goes, the views, the span of charts, light or dark.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { live, type Live } from "../live/live";
import { VIEWS, changed, href, route } from "../live/route";
import { useStore } from "../live/store";
import { SPANS } from "../api/types";
import { moment, seconds } from "./format";
import { Icon, type IconName } from "./icon";
import { Choice } from "./section";
import { THEMES, choose, theme } from "./theme";

const STALE_MS = 5000;

interface Shown {
    key: string;
    tone: string;
    icon: IconName;
    text: string;
}

const ENDS = { finished: "all input is done", stopped: "it was stopped" };

function stateOf(now: Live, time: number, heard: number): Shown {
    const since = `since ${moment(now.since)}, ${seconds(Math.max(0, Math.round((time - now.since) / 1000)))}`;
    const ended = now.figures?.state ?? "running";
    if (ended === "failed") return { key: "failed", tone: "bad", icon: "warning", text: "ended: the run failed" };
    if (ended !== "running") return { key: ended, tone: "plain", icon: "ended", text: `ended: ${ENDS[ended]}` };
    if (now.phase === "locked") return { key: "locked", tone: "warning", icon: "warning", text: "a token is wanted" };
    if (now.phase === "connecting") return { key: "connecting", tone: "plain", icon: "waiting", text: "connecting" };
    if (now.phase === "reconnecting")
        return { key: "reconnecting", tone: "bad", icon: "lost", text: `not reached ${since}; connecting again` };
    if (now.figures === null)
        return { key: "restoring", tone: "warning", icon: "waiting", text: "reached; no figures yet" };
    if (time - heard > STALE_MS)
        return { key: "silent", tone: "warning", icon: "waiting", text: `no news since ${moment(heard)}` };
    return { key: "running", tone: "good", icon: "running", text: "running" };
}

/* The browser's time, each second, and when figures came last. */
function useTime(now: Live): [number, number] {
    const [time, setTime] = useState(Date.now());
    const [heard, setHeard] = useState(Date.now());
    useEffect(() => setHeard(Date.now()), [now.figures]);
    useEffect(() => {
        const timer = setInterval(() => !document.hidden && setTime(Date.now()), 1000);
        return () => clearInterval(timer);
    }, []);
    return [time, heard];
}

function State({ now }: { now: Live }): JSX.Element {
    const [time, heard] = useTime(now);
    const shown = stateOf(now, time, heard);
    return (
        <span
            class={"state " + shown.tone}
            role="status"
            data-key="state"
            data-value={shown.key}
            title={now.why || shown.text}>
            <Icon name={shown.icon} />
            <span>{shown.text}</span>
        </span>
    );
}

function ThemeSwitch(): JSX.Element {
    const chosen = useStore(theme, (value) => value);
    const next = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length] ?? "system";
    const name = { system: "as the system", light: "light", dark: "dark" }[chosen];
    return (
        <button
            type="button"
            class="button"
            onClick={() => choose(next)}
            aria-label={`Colours: ${name}. Change`}
            title={`Colours: ${name}`}
            data-theme-chosen={chosen}>
            <Icon name={chosen} />
        </button>
    );
}

export function Header(): JSX.Element {
    const now = useStore(live, (value) => value);
    const at = useStore(route, (value) => value);
    const job = now.figures?.job;
    useEffect(() => {
        document.title = job === undefined ? "leat" : `${job} · leat`;
    }, [job]);
    const nav = useRef<HTMLElement>(null);
    useEffect(() => {
        nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    }, [at.view]);
    const restart = now.restarts.at(-1);
    return (
        <header class="page-head">
            <div class="head-line">
                <h1>
                    <span class="brand">leat</span>
                    <bdi data-key="figures.job" data-value={job ?? "null"} title={job ?? "not known"}>
                        {job ?? "…"}
                    </bdi>
                </h1>
                <State now={now} />
                {restart !== undefined ? (
                    <span class="state plain" data-key="restarted" data-value={restart}>
                        <Icon name="waiting" />
                        <span>restarted, reached again at {moment(restart)}</span>
                    </span>
                ) : null}
                <span class="spring" />
                <Choice
                    label="Span of the charts"
                    chosen={at.span}
                    options={SPANS.map((span) => ({ key: span, name: span, href: changed({ span }) }))}
                />
                <ThemeSwitch />
            </div>
            <nav class="views" aria-label="Views" ref={nav}>
                {VIEWS.map((view) => (
                    <a key={view} href={href({ view })} aria-current={view === at.view ? "page" : undefined}>
                        {view}
                    </a>
                ))}
            </nav>
        </header>
    );
}
