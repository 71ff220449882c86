// Whether an element is on the screen: one IntersectionObserver for all. True until it is known.
import type { RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";

const told = new WeakMap<Element, (isVisible: boolean) => void>();
let observer: IntersectionObserver | null = null;

function watch(element: Element, tell: (isVisible: boolean) => void): () => void {
    observer ??= new IntersectionObserver(
        (entries) => {
            for (const entry of entries) told.get(entry.target)?.(entry.isIntersecting);
        },
        { rootMargin: "80px" },
    );
    told.set(element, tell);
    observer.observe(element);
    return () => {
        observer?.unobserve(element);
        told.delete(element);
    };
}

export function useVisible(ref: RefObject<Element>): boolean {
    const [isVisible, setVisible] = useState(true);
    useEffect(() => (ref.current === null ? undefined : watch(ref.current, setVisible)), [ref]);
    return isVisible;
}
