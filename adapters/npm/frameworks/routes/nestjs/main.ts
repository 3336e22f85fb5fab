import "reflect-metadata";
import { Controller, Get, Module, Param, UseGuards } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { ran } from "./gate.js";
import { LimitGuard } from "./limit.guard.js";

@Controller()
@UseGuards(LimitGuard)
class Pages {
  @Get("account")
  account(): string {
    ran("account");
    return "account";
  }

  @Get("shop/:item")
  item(@Param("item") item: string): string {
    ran("item");
    return item;
  }
}

@Controller("api")
@UseGuards(LimitGuard)
class Api {
  @Get("login")
  login(): string {
    ran("login");
    return "login";
  }
}

@Controller()
class Home {
  @Get()
  home(): string {
    return "home";
  }
}

@Module({ controllers: [Pages, Api, Home] })
class App {}

NestFactory.create(App).then((app) => app.listen(Number(process.env.PORT), process.env.HOST ?? "0.0.0.0"));
