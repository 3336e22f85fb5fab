import "reflect-metadata";
import { Controller, Get, Module, UseGuards } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { LimitGuard } from "./limit.guard.js";

@Controller("api")
@UseGuards(LimitGuard)
class Api {
  @Get("hello")
  hello(): string {
    return "hello";
  }
}

@Controller()
class Home {
  @Get()
  home(): string {
    return "home";
  }
}

@Module({ controllers: [Api, Home] })
class App {}

NestFactory.create(App).then((app) => app.listen(Number(process.env.PORT), process.env.HOST ?? "0.0.0.0"));
