import { Tidegate } from "@tidegate/edge";
import express from "express";

const tidegate = Tidegate.fromEnv({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

const app = express();
app.use("/api", async (req, res, next) => {
  const request = new Request("http://localhost", { headers: req.headers as Record<string, string> });
  const { headers, response } = await tidegate.check(request, { peer: req.ip });
  res.set(headers);
  if (response) res.status(response.status).send(await response.text());
  else next();
});
app.get("/api/hello", (_req, res) => void res.send("hello"));
app.get("/", (_req, res) => void res.send("home"));

app.listen(Number(process.env.PORT), process.env.HOST ?? "0.0.0.0");
