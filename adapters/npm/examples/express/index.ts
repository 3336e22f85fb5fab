import { Tidegate } from "@tidegate/edge";
import express from "express";
import type { IncomingHttpHeaders } from "node:http";

const tidegate = Tidegate.fromEnv({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

// HTTP/2 has pseudo-header fields, whose names are no names of Headers.
const fields = (headers: IncomingHttpHeaders) =>
  Object.entries(headers).filter(([name]) => !name.startsWith(":")) as [string, string][];

const app = express();
app.use("/api", async (req, res, next) => {
  const request = new Request("http://localhost", { headers: fields(req.headers) });
  const { headers, http } = await tidegate.check(request, { peer: req.ip });
  res.set(headers);
  if (http) res.status(http.status).send(http.body);
  else next();
});
app.get("/api/hello", (_req, res) => void res.send("hello"));
app.get("/", (_req, res) => void res.send("home"));

app.listen(Number(process.env.PORT), process.env.HOST ?? "0.0.0.0");
