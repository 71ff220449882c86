// The tail of what the process says. It follows the newest line as long as the reader has not scrolled away from it.
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { live, streamedLog } from "../live/live";
import { usePolled } from "../live/polled";
import { changed, route } from "../live/route";
import { useStore } from "../live/store";
import type { LogLine, LogTail } from "../api/types";
import { iso, moment } from "../parts/format";
import { Icon } from "../parts/icon";
import { Missing, Notice } from "../parts/notice";
import { Choice, Section } from "../parts/section";

const LINES_MAX = 1000;
const NEAR_END = 40; // pixels

function Line({ line }: { line: LogLine }): JSX.Element {
    return (
        <li class={"log-line " + line.level} data-n={line.n}>
            <time dateTime={iso(line.time)} title={iso(line.time)}>
                {moment(line.time)}
            </time>
            <span class="level">
                {line.level === "info" ? null : <Icon name="warning" />}
                {line.level}
            </span>
            <span class="log-text" data-key={`log[${line.n}].text`} data-value={line.text}>
                <bdi>{line.text}</bdi>
            </span>
            {line.repeated > 1 ? (
                <span class="muted" data-key={`log[${line.n}].repeated`} data-value={line.repeated}>
                    ×{line.repeated}
                </span>
            ) : null}
        </li>
    );
}

/* What was asked for and what came with the stream, each line once, the newest form of a repeated one. */
function together(asked: LogLine[], streamed: LogLine[]): LogLine[] {
    const lines = new Map(asked.map((line) => [line.n, line]));
    for (const line of streamed) lines.set(line.n, line);
    return [...lines.values()].sort((a, b) => a.n - b.n).slice(-LINES_MAX);
}

/* Scrolls to the end when lines are added, if the end was to be seen before. */
function useFollow(version: unknown) {
    const list = useRef<HTMLOListElement>(null);
    const follows = useRef(true);
    useEffect(() => {
        const element = list.current;
        const look = () => {
            if (element) follows.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END;
        };
        element?.addEventListener("scroll", look, { passive: true });
        return () => element?.removeEventListener("scroll", look);
    }, []);
    useLayoutEffect(() => {
        if (list.current && follows.current) list.current.scrollTop = list.current.scrollHeight;
    }, [version]);
    return list;
}

export function Log(): JSX.Element {
    const { query } = useStore(route, (now) => now);
    const life = useStore(live, (now) => now.life);
    const news = useStore(live, (now) => now.logNews);
    const gaps = useStore(live, (now) => now.logGaps);
    const answer = usePolled<LogTail>("log", 30_000, `${life} ${gaps}`); // the stream has what comes
    const level = query.get("level") ?? "all";
    const asked = answer.is === "here" ? answer.value.lines : [];
    const lines = useMemo(() => together(asked, streamedLog), [asked, news]);
    const shown = level === "all" ? lines : lines.filter((line) => line.level !== "info");
    const list = useFollow(shown.at(-1)?.n);
    const choice = (
        <Choice
            label="Which lines"
            chosen={level}
            options={[
                { key: "all", name: "all", href: changed({ query: { level: "" } }) },
                { key: "warnings", name: "warnings and errors", href: changed({ query: { level: "warnings" } }) },
            ]}
        />
    );
    return (
        <Section title="Log" aside={choice}>
            {answer.is === "here" || streamedLog.length > 0 ? null : <Missing answer={answer} what="The log" />}
            {answer.is === "here" && shown.length === 0 ? (
                <Notice>Nothing was said{level === "all" ? "" : " of that level"}.</Notice>
            ) : null}
            <ol class="log code" ref={list} tabIndex={0} aria-label="Lines of the log, newest last">
                {shown.map((line) => (
                    <Line key={line.n} line={line} />
                ))}
            </ol>
        </Section>
    );
}
