// What the page uses of packages of others; `tools/page/build.py` makes one module of it.
export { createElement, useEffect, useRef, useState } from "react";
export { createRoot } from "react-dom/client";
export { useChat } from "@ai-sdk/react";
export { DefaultChatTransport } from "ai";
