import { createServer } from "node:http";
import { createRequestListener } from "@remix-run/node-fetch-server";
import { respond } from "./build/server/index.js";

createServer(createRequestListener(respond)).listen(Number(process.env.PORT), process.env.HOST);
