// Light or dark: the system's, or the one chosen here, which this browser keeps.
import { Store } from "../live/store";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "leat theme";

function stored(): Theme {
    try {
        return THEMES.find((theme) => theme === localStorage.getItem(KEY)) ?? "system";
    } catch {
        return "system"; // storage is forbidden
    }
}

export const theme = new Store<Theme>(stored());
/* Rises when the colours change, whoever changed them. */
export const colours = new Store(0);

function show(): void {
    if (theme.value === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = theme.value;
    colours.set(colours.value + 1);
}

export function choose(next: Theme): void {
    theme.set(next);
    try {
        localStorage.setItem(KEY, next);
    } catch {
        // it holds for this page alone
    }
    show();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
show();
