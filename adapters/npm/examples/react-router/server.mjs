import { limit } from "@tidegate/edge/react-router";
import { createRequestHandler } from "react-router";
import { tidegate } from "../tidegate.mjs";

/** Serves the app's build. A 304 costs nothing: it is refunded after the response. */
export const handler = (build, waitUntil) =>
  limit(tidegate("netlify"), createRequestHandler(build), { refund: (response) => (response.status === 304 ? 1 : 0), waitUntil });
