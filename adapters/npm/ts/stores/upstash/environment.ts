/** Environment variables by name. */
export type Environment = Readonly<Record<string, unknown>>;

declare const process: { env: Environment } | undefined;

/** The URL and the token of a database, as the environment has them. */
export function databaseIn(env: Environment | undefined): { url: string | undefined; token: string | undefined } {
  let [url, token]: unknown[] = [];
  if (env) {
    url = env["UPSTASH_REDIS_REST_URL"] ?? env["KV_REST_API_URL"];
    token = env["UPSTASH_REDIS_REST_TOKEN"] ?? env["KV_REST_API_TOKEN"];
  } else if (typeof process !== "undefined") {
    // Builders replace `process.env.NAME` by its value, and only if it is written like this.
    url = process.env["UPSTASH_REDIS_REST_URL"] ?? process.env["KV_REST_API_URL"];
    token = process.env["UPSTASH_REDIS_REST_TOKEN"] ?? process.env["KV_REST_API_TOKEN"];
  }
  return { url: url as string | undefined, token: token as string | undefined };
}
