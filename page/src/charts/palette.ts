// Colours and dashes of lines: each line differs from the others by both, so that no colour is alone.

const NAMES = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6", "--line-7", "--line-8"];
const DASHES = [[], [6, 3], [2, 2], [9, 3, 2, 3], [12, 4], [4, 2, 1, 2], [1, 3], [8, 2, 2, 2, 2, 2]];

export function colour(name: string): string {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function lineColour(index: number): string {
    return colour(NAMES[index % NAMES.length] ?? "--line-1");
}

export function lineDash(index: number): number[] {
    return DASHES[index % DASHES.length] ?? [];
}

/* The class of the sign of a line in a legend. */
export function lineClass(index: number): string {
    return "line-" + ((index % NAMES.length) + 1);
}
