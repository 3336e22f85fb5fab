import { createServer } from "node:http";
import { Tidegate } from "@tidegate/edge";
import { Gate } from "@tidegate/edge/gate";
import { limit } from "@tidegate/edge/node";
import rules from "./rules.json";

const gate = Gate.fromRules(rules, { platform: "direct", stores: { default: (options) => Tidegate.fromEnv(options) } });
const limited = limit(gate);

createServer((req, res) => {
  limited(req, res, (error) => {
    if (error) res.writeHead(500);
    res.end(error ? "error" : req.url.startsWith("/api/") ? "hello" : "home");
  });
}).listen(Number(process.env.PORT), process.env.HOST ?? "0.0.0.0");
