"""Signing in at authorization servers that others wrote, with MCP servers that others wrote, in a real browser.

npm's `oidc-provider` (strict: a refresh token that comes twice ends the grant; device codes), Cloudflare's
`workers-oauth-provider` on `miniflare` (what Notion, Sentry and Cloudflare run), `oauth2-mock-server` (faults); behind
them servers written with the SDK and with FastMCP. The browser is Debian's Chromium, headless, where it is installed,
and else a program that follows addresses and sends off forms. Everything is installed once, by version, into the user's
cache; where npm or the network is missing, the tests are skipped with that as their reason.
"""
