import { defineEnvVars } from "@sveltejs/kit/env";

// A build has no secrets, so they are optional.
const optional = { schema: (value: string | undefined) => value };

export const variables = defineEnvVars({ UPSTASH_REDIS_REST_URL: optional, UPSTASH_REDIS_REST_TOKEN: optional });
