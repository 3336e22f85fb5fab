import { limitRoute } from "@tidegate/edge/react-router";
import { gate } from "../gate";

export const limited = limitRoute(gate, { check: () => ({ peer: "192.0.2.1" }) });
