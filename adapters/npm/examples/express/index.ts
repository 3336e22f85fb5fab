import { Tidegate } from "@tidegate/edge";
import { limit } from "@tidegate/edge/node";
import express from "express";

const tidegate = Tidegate.fromEnv({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

const app = express();
app.use("/api", limit(tidegate));
app.get("/api/hello", (_req, res) => void res.send("hello"));
app.get("/", (_req, res) => void res.send("home"));

app.listen(Number(process.env.PORT), process.env.HOST ?? "0.0.0.0");
