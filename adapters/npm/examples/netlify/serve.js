// Serves the edge functions as Netlify's development server does, but with the bootstrap of this folder.

import path from "node:path";
import { pathToFileURL } from "node:url";
import { find, serve } from "@netlify/edge-bundler";

const basePath = path.resolve(".");
const port = Number(process.env.PORT);
const bootstrapURL = pathToFileURL("bootstrap.ts").href;
const start = await serve({ basePath, rootPath: basePath, servePath: path.resolve(".netlify/serve"), bootstrapURL, port });
const { HOST, UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN } = process.env;
const { success } = await start(await find([path.resolve("netlify/edge-functions")]), { HOST, UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN });
if (!success) throw new Error("the edge function does not start");
