import type { ClientAddress } from "@remix-run/node-fetch-server";
import { Tidegate } from "@tidegate/edge";
import { limit } from "@tidegate/edge/react-router";
import { createRequestHandler } from "react-router";
import * as build from "virtual:react-router/server-build";

const tidegate = Tidegate.fromEnv({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });
const app = createRequestHandler(build);

export const respond = limit(tidegate, (request, _client: ClientAddress) => app(request), {
  check: (request, [client]) => (new URL(request.url).pathname === "/" ? null : { peer: client.address }),
});
