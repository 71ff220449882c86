// A value that views follow. Who follows is told at most once a frame, and not while the page is hidden.
import { useEffect, useState } from "preact/hooks";

export class Store<T> {
    private listeners = new Set<() => void>();
    private isDue = false;

    constructor(public value: T) {
        document.addEventListener("visibilitychange", () => !document.hidden && this.tell());
    }

    set(value: T): void {
        this.value = value;
        if (document.hidden || this.isDue) return;
        this.isDue = true;
        requestAnimationFrame(() => this.tell());
    }

    private tell(): void {
        this.isDue = false;
        for (const listener of [...this.listeners]) listener();
    }

    follow(listener: () => void): () => void {
        this.listeners.add(listener);
        return () => this.listeners.delete(listener);
    }
}

/* What `of` takes from the store; the component is drawn again when that is another. Not while isOn is false. */
export function useStore<T, U>(store: Store<T>, of: (value: T) => U, isOn = true): U {
    const value = of(store.value);
    const [, draw] = useState(0);
    useEffect(() => {
        if (!isOn) return undefined;
        let shown = value;
        const look = () => {
            const next = of(store.value);
            if (Object.is(next, shown)) return;
            shown = next;
            draw((n) => n + 1);
        };
        look(); // it may have changed since the component was drawn
        return store.follow(look);
    }, [store, isOn, value]);
    return value;
}
