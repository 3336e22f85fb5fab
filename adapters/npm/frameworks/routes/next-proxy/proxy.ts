import { limit } from "@tidegate/edge/next";
import { gate } from "./gate";

export const proxy = limit(gate, { check: () => ({ peer: "192.0.2.1" }) });
