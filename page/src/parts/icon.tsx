// Signs that stand beside a text and never alone; drawn in the colour of that text.
import type { JSX } from "preact";

const PATHS = {
    running: "M4 3l9 5-9 5z",
    waiting: "M8 2a6 6 0 1 0 6 6M8 4.5V8l2.5 1.5",
    ended: "M4 4h8v8H4z",
    lost: "M3 3l10 10M13 3L3 13",
    warning: "M8 2l6.5 11.5h-13zM8 6.5v3.2M8 11.4v.6",
    slow: "M3 3h10M3 13h10M4.5 3c0 4 2.2 3.5 2.2 5s-2.2 1-2.2 5M11.5 3c0 4-2.2 3.5-2.2 5s2.2 1 2.2 5",
    good: "M3 8.5l3.5 3.5L13 4.5",
    hold: "M8 2v9M4.5 7.5L8 11l3.5-3.5M3 14h10",
    close: "M4 4l8 8M12 4l-8 8",
    light: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1",
    dark: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
    system: "M2 3h12v8H2zM6 14h4M8 11v3",
};
export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }): JSX.Element {
    return (
        <svg class={"icon icon-" + name} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
            <path d={PATHS[name]} />
        </svg>
    );
}
