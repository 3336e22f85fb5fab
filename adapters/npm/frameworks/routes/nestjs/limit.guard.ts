import { type CanActivate, type ExecutionContext, HttpException, Injectable } from "@nestjs/common";
import type { Request as Req, Response as Res } from "express";
import { gate } from "./gate.js";

const request = new Request("http://localhost");

@Injectable()
export class LimitGuard implements CanActivate {
  async canActivate(context: ExecutionContext): Promise<boolean> {
    const [req, res] = [context.switchToHttp().getRequest<Req>(), context.switchToHttp().getResponse<Res>()];
    const { headers, http } = await gate.check(request, { target: req.originalUrl, method: req.method, framework: "express", peer: "192.0.2.1" });
    res.set(headers);
    if (http) throw new HttpException(JSON.parse(http.body), http.status);
    return true;
  }
}
