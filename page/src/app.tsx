// The page: header, and the view that the URL names. A view that fails says so, and the others go on.
import { Component, type ComponentChildren, type JSX } from "preact";
import { hasEnded, live } from "./live/live";
import { route, type View } from "./live/route";
import { useStore } from "./live/store";
import { Header } from "./parts/header";
import { moment } from "./parts/format";
import { Notice } from "./parts/notice";
import { TokenForm } from "./parts/token";
import { Checkpoints } from "./views/checkpoints";
import { Data } from "./views/data";
import { Job } from "./views/job/job";
import { Learning } from "./views/learning";
import { Log } from "./views/log";
import { Serving } from "./views/serving";
import { State } from "./views/state";

const SHOWN: Record<View, () => JSX.Element> = {
    job: Job,
    learning: Learning,
    data: Data,
    state: State,
    checkpoints: Checkpoints,
    serving: Serving,
    log: Log,
};

class Guard extends Component<{ children: ComponentChildren }, { said: string }> {
    override state = { said: "" };

    static override getDerivedStateFromError(error: unknown): { said: string } {
        return { said: error instanceof Error ? error.message : String(error) };
    }

    override render() {
        if (this.state.said === "") return this.props.children;
        return (
            <Notice tone="bad">
                This view cannot be shown: {this.state.said}. The other views go on; load the page again to retry.
            </Notice>
        );
    }
}

/* While the process is not reached the views stand still, and it is said of when they are. */
function Stale(): JSX.Element | null {
    const since = useStore(live, (now) => (now.phase === "reconnecting" && now.figures !== null ? now.since : 0));
    const why = useStore(live, (now) => now.why);
    if (since === 0 || hasEnded(live.value.figures)) return null;
    return (
        <Notice tone="bad">
            The process is not reached ({why}). What is shown is what was known at {moment(since)}.
        </Notice>
    );
}

export function App(): JSX.Element {
    const { view } = useStore(route, (now) => now);
    const isLocked = useStore(live, (now) => now.phase === "locked");
    const Shown = SHOWN[view];
    return (
        <>
            <a
                class="skip"
                href="#main"
                onClick={(event) => {
                    event.preventDefault();
                    document.getElementById("main")?.focus();
                }}>
                To the view
            </a>
            <Header />
            <main id="main" tabIndex={-1} aria-label={view}>
                <Stale />
                {isLocked ? (
                    <TokenForm />
                ) : (
                    <Guard key={view}>
                        <Shown />
                    </Guard>
                )}
            </main>
        </>
    );
}
