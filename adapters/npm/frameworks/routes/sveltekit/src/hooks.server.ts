import { limit } from "@tidegate/edge/sveltekit";
import { gate } from "../gate";

export const handle = limit(gate);
