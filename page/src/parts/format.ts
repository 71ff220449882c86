// Figures as short texts. The full value is always beside them (`title`, `data-value`: parts/value.tsx).

export const UNKNOWN = "–";
export type Format = (value: number) => string;

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/* Three digits: 0.00123, 0.123, 12.3, 123. */
export function digits(value: number): string {
    if (value === 0 || !Number.isFinite(value)) return String(value);
    const size = Math.abs(value);
    if (size >= 1e15 || size < 1e-4) return value.toExponential(2);
    if (size >= 1000) return grouped.format(value);
    return String(Number(value.toPrecision(3)));
}

/* Of AUC and calibration the fourth decimal counts. */
export function fine(value: number): string {
    return value.toFixed(4);
}

export function whole(value: number): string {
    return Number.isInteger(value) ? grouped.format(value) : digits(value);
}

/* 12,345 is 12.3 k. */
export function short(value: number): string {
    const size = Math.abs(value);
    for (const [unit, name] of [
        [1e12, "T"],
        [1e9, "G"],
        [1e6, "M"],
        [1e3, "k"],
    ] as const)
        if (size >= unit * 0.9995) return `${(value / unit).toPrecision(3)}\u202f${name}`;
    return Number.isInteger(value) ? String(value) : digits(value);
}

export function share(value: number): string {
    const percent = value * 100;
    if (percent > 0 && percent < 0.1) return "<\u202f0.1\u202f%";
    return `${percent < 10 && percent > 0 ? percent.toFixed(1) : percent.toFixed(0)}\u202f%`;
}

export function bytes(value: number): string {
    let unit = 0;
    let rest = value;
    while (Math.abs(rest) >= 1024 && unit < 5) {
        rest /= 1024;
        unit++;
    }
    return `${unit === 0 ? rest : rest >= 999.5 ? Math.round(rest) : rest.toPrecision(3)}\u202f${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

export function seconds(value: number): string {
    const s = Math.max(value, 0);
    if (s === 0) return "0\u202fs";
    if (s < 0.001) return `${Math.round(s * 1e6)}\u202fµs`;
    if (s < 1) return `${Number((s * 1000).toPrecision(3))}\u202fms`;
    if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)}\u202fs`;
    if (s < 3600) return `${Math.floor(s / 60)}\u202fmin ${Math.floor(s % 60)}\u202fs`;
    if (s < 86400) return `${Math.floor(s / 3600)}\u202fh ${Math.floor((s % 3600) / 60)}\u202fmin`;
    return `${Math.floor(s / 86400)}\u202fd ${Math.floor((s % 86400) / 3600)}\u202fh`;
}

/* In one unit, for narrow places: 3 min, 2.1 h. */
export function coarse(value: number): string {
    if (value < 60) return seconds(value);
    const [unit, name] = value < 3600 ? [60, "min"] : value < 86400 ? [3600, "h"] : [86400, "d"];
    const rest = value / (unit as number);
    return `${rest < 10 ? rest.toFixed(1) : rest.toFixed(0)}\u202f${name}`;
}

export const milliseconds: Format = (value) => seconds(value / 1000);

const two = (value: number): string => String(value).padStart(2, "0");

/* The browser's local time; with its day if that is not today. */
export function moment(ms: number): string {
    const date = new Date(ms);
    if (Number.isNaN(date.getTime())) return UNKNOWN;
    const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
    const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    return date.toDateString() === new Date().toDateString() ? time : `${day} ${time}`;
}

export function iso(ms: number): string {
    const date = new Date(ms);
    return Number.isNaN(date.getTime()) ? UNKNOWN : date.toISOString();
}

/* The text, or its beginning. */
export function cut(text: string, characters: number): string {
    return text.length <= characters ? text : text.slice(0, Math.max(characters - 1, 0)) + "…";
}

/* "lane_share" is "lane share". */
export function words(name: string): string {
    return name.replaceAll("_", " ");
}

/* By what a figure of a report is called, how it is shown. */
export function formatOf(name: string): Format {
    if (name.endsWith("_bytes") || name === "fetched" || name === "bytes") return bytes;
    if (name.endsWith("_seconds") || name === "lag") return seconds;
    if (name.endsWith("_ms")) return milliseconds;
    if (name.endsWith("_share")) return share;
    return whole;
}
