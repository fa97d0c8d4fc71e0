// npm `oauth2-mock-server`: answers at its token endpoint whatever it is told to. It has OpenID Connect metadata alone, no
// registration, and calls itself `localhost` though it is at 127.0.0.1.
// `GET /_issuer` names it; `GET /_fault?status=503&body=…` is what token requests are answered from then on,
// and with status 0 no more.
// Environment: PACKAGES (the folder above node_modules).
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { sendJson, serve } from './front.mjs';

const packages = createRequire(`${process.env.PACKAGES}/here.js`);
const { OAuth2Server } = await import(pathToFileURL(packages.resolve('oauth2-mock-server')));
const server = new OAuth2Server();

await serve(async (origin, seen) => {
  await server.issuer.keys.generate('RS256');
  await server.start(0, '127.0.0.1');
  let fault = null;
  server.service.on('beforeTokenSigning', (token, request) => {
    token.payload.aud = request.body.resource;
  });
  server.service.on('beforeResponse', (response, request) => {
    if (fault !== null) Object.assign(response, fault);
    const { grant_type: grant, resource = '' } = request.body;
    seen.push({ path: '/token', grant, resource, status: response.statusCode, error: '' });
  });
  return async (request, response) => {
    const url = new URL(request.url, origin);
    if (url.pathname === '/_issuer') return sendJson(response, server.issuer.url);
    const [status, body] = [Number(url.searchParams.get('status')), url.searchParams.get('body')];
    fault = status === 0 ? null : { statusCode: status, body: body.startsWith('{') ? JSON.parse(body) : body };
    return sendJson(response, true);
  };
}, () => server.stop());
