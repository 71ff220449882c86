// The plan is asked for once for each process.
import type { Plan } from "../api/types";
import { live } from "./live";
import { usePolled, type Polled } from "./polled";
import { useStore } from "./store";

export function usePlan(): Polled<Plan> {
    const life = useStore(live, (now) => `${now.life} ${now.figures?.fingerprint ?? ""}`);
    return usePolled<Plan>("plan", 0, life);
}
