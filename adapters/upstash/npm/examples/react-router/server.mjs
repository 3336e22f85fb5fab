import { limit } from "@tollgate-rs/edge/react-router";
import { createRequestHandler } from "react-router";
import { tollgate } from "../tollgate.mjs";

/** Answers by the app's build; an answer from the client's own cache costs nothing. */
export const handler = (build, waitUntil) =>
  limit(tollgate("netlify"), createRequestHandler(build), { refund: (response) => (response.status === 304 ? 1 : 0), waitUntil });
