import type { ComponentChildren, JSX } from "preact";

/* A part of a view, with its heading; aside: on the heading's line, at the right. */
export function Section({
    title,
    aside,
    children,
    id,
}: {
    title: string;
    aside?: ComponentChildren;
    children: ComponentChildren;
    id?: string;
}): JSX.Element {
    return (
        <section class="section" id={id} aria-label={title}>
            <div class="section-head">
                <h2>{title}</h2>
                {aside ? <div class="aside">{aside}</div> : null}
            </div>
            {children}
        </section>
    );
}

/* Links between which one is chosen. */
export function Choice({
    label,
    options,
    chosen,
}: {
    label: string;
    options: { name: string; href: string; key: string }[];
    chosen: string;
}): JSX.Element {
    return (
        <nav class="choice" aria-label={label}>
            {options.map((option) => (
                <a key={option.key} href={option.href} aria-current={option.key === chosen ? "true" : undefined}>
                    {option.name}
                </a>
            ))}
        </nav>
    );
}
