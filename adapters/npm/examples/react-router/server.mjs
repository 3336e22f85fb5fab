import { limit } from "@tidegate/edge/react-router";
import { createRequestHandler } from "react-router";
import { tidegate } from "../tidegate.mjs";

/** Answers by the app's build; an answer from the client's own cache costs nothing. */
export const handler = (build, waitUntil) =>
  limit(tidegate("netlify"), createRequestHandler(build), { refund: (response) => (response.status === 304 ? 1 : 0), waitUntil });
