import { limit } from "@tidegate/edge/next";
import { api } from "./tidegate";

export const proxy = limit(api);
export const config = { matcher: ["/api/hello", "/page"] };
