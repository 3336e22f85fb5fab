// Invokes the handler with the events that API Gateway makes of requests (payload format 2.0).

import { createServer } from "node:http";
import { handler } from "./dist/index.js";

const server = createServer(async (req, res) => {
  const { pathname: path, search } = new URL(req.url, "http://localhost");
  const http = { method: req.method, path, protocol: "HTTP/1.1", sourceIp: req.socket.remoteAddress, userAgent: "" };
  const context = { accountId: "anonymous", apiId: "api", http, requestId: "1", routeKey: "$default", stage: "$default", time: "", timeEpoch: Date.now() };
  const event = { version: "2.0", routeKey: "$default", rawPath: path, rawQueryString: search.slice(1), headers: req.headers, requestContext: context, isBase64Encoded: false };
  const { statusCode, headers, body } = await handler(event);
  res.writeHead(statusCode, headers).end(body);
});
server.listen(Number(process.env.PORT), process.env.HOST);
