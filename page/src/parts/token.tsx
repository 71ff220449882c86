// Asks for the token that the listener wants. It stays in the memory of this tab.
import type { JSX } from "preact";
import { unlock } from "../live/live";

export function TokenForm(): JSX.Element {
    const take = (event: Event) => {
        event.preventDefault();
        const form = event.currentTarget as HTMLFormElement;
        const field = form.elements.namedItem("token") as HTMLInputElement;
        unlock(field.value);
        field.value = "";
    };
    return (
        <form class="ask token" onSubmit={take}>
            <label class="grow">
                This listener wants a token (read, or act)
                <input name="token" type="password" autocomplete="off" required />
            </label>
            <button type="submit">Go on</button>
            <p class="muted">
                It is kept in the memory of this tab alone, and is gone when the tab is closed or loaded again.
            </p>
        </form>
    );
}
