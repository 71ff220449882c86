// What stands where something else would be: it is awaited, this leat does not have it, or it failed.
import type { ComponentChildren, JSX } from "preact";
import { PASSING, type Polled } from "../live/polled";
import { Icon, type IconName } from "./icon";
import { TokenForm } from "./token";

export type Tone = "plain" | "good" | "warning" | "bad";

export function Notice({
    tone = "plain",
    icon,
    children,
}: {
    tone?: Tone;
    icon?: IconName;
    children: ComponentChildren;
}): JSX.Element {
    const sign = icon ?? (tone === "bad" || tone === "warning" ? "warning" : undefined);
    return (
        <p class={"notice " + tone} role={tone === "bad" ? "alert" : undefined}>
            {sign ? <Icon name={sign} /> : null}
            <span>{children}</span>
        </p>
    );
}

/* Why an answer is not there; null: it is. what: "Checkpoints". */
export function Missing({ answer, what }: { answer: Polled<unknown>; what: string }): JSX.Element | null {
    if (answer.is === "here") return null;
    if (answer.is === "awaited") return <Notice>{what}: awaited …</Notice>;
    if (answer.is === "absent")
        return (
            <p class="notice absent" data-absent={what}>
                {what}: this version of leat does not have it.
            </p>
        );
    if (answer.is === "locked") return <TokenForm />;
    if (answer.status === 0)
        return (
            <Notice tone="warning">
                {what}: the server is not reached ({answer.text}).
            </Notice>
        );
    return (
        <Notice tone="warning">
            {what}: {answer.text} (status {answer.status})
            {PASSING.includes(answer.status) ? "; it is asked for again" : ""}
        </Notice>
    );
}
