import { limit } from "@tidegate/edge/next";
import type { NextProxy } from "next/server";
import { api } from "./tidegate";

export const proxy: NextProxy = limit(api);
export const config = { matcher: ["/api/hello", "/page"] };
