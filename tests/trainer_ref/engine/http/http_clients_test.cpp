// What common clients send first: browsers, openai, curl, ApacheBench, Java's HttpClient, probes of containers.
#include "http_fixture.h"

namespace bascule::ref {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kBody = R"({"prompt": [1], "max_tokens": 3})";

class HttpClientsTest : public HttpServerTest {
 protected:
  // The whole answer to one request on a new connection.
  std::string ask(const std::string& line, const std::string& header = "", const std::string& body = "") {
    RawConnection client(server_->url());
    client.send(line + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header +
                (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" + body);
    return client.read_to_end();
  }
};

TEST_F(HttpClientsTest, ABrowsersPageIsLetInByItsOrigin) {
  start();
  const std::string local = "Origin: http://localhost:3000\r\n", foreign = "Origin: https://example.com\r\n";
  const std::string allows = "Access-Control-Allow-Origin: http://localhost:3000\r\n";
  const std::string wish =
      "Access-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n";
  const std::string preflight = ask("OPTIONS /v1/chat/completions", local + wish);
  EXPECT_THAT(preflight, StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(preflight, HasSubstr(allows));
  EXPECT_THAT(preflight, HasSubstr("Access-Control-Allow-Methods: POST, OPTIONS\r\n"));
  EXPECT_THAT(preflight, HasSubstr("Access-Control-Allow-Headers: authorization,content-type,x-stainless-os\r\n"));
  EXPECT_THAT(ask("OPTIONS /v1/models", foreign + wish), StartsWith("HTTP/1.1 403"));

  const std::string stream = R"({"prompt": [1], "max_tokens": 3, "stream": true})";
  for (const auto& [line, body] : {std::pair<std::string, std::string>("GET /v1/models", ""),
                                   {"POST /v1/completions", kBody},
                                   {"POST /v1/completions", stream},
                                   {"POST /v1/completions", "no JSON"},
                                   {"GET /nowhere", ""},
                                   {"POST /health", "{}"}}) {
    const std::string seen = ask(line, local, body), alone = ask(line, "", body);
    EXPECT_THAT(seen, HasSubstr(allows)) << line;
    EXPECT_THAT(seen, HasSubstr("Vary: Origin\r\n")) << line;
    EXPECT_THAT(alone, Not(HasSubstr("Access-Control"))) << line;
  }
  const std::string read = ask("GET /v1/models", foreign);
  EXPECT_THAT(read, StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(read, Not(HasSubstr("Access-Control"))) << "the browser keeps it from the page";
  for (const char* line : {"POST /v1/completions", "POST /sleep"}) {
    const std::string refused = ask(line, foreign, kBody);
    EXPECT_THAT(refused, StartsWith("HTTP/1.1 403")) << line;
    EXPECT_THAT(refused, HasSubstr("--allowed-origins=https://example.com")) << line;
  }
  EXPECT_FALSE(engine_.stats().asleep);
}

TEST_F(HttpClientsTest, WithAKeyEveryPageIsLetInWhichHasTheKey) {
  start({.max_header_bytes = 400, .api_key = "sesame"});
  const std::string origin = "Origin: https://example.com\r\n", allows = "Access-Control-Allow-Origin: *\r\n";
  const std::string preflight = ask("OPTIONS /v1/completions", origin + "Access-Control-Request-Method: POST\r\n");
  EXPECT_THAT(preflight, StartsWith("HTTP/1.1 200 OK")) << "browsers send it without the key";
  EXPECT_THAT(preflight, HasSubstr(allows));
  EXPECT_THAT(preflight, Not(HasSubstr("Vary")));
  const std::string denied = ask("POST /v1/completions", origin, kBody);
  EXPECT_THAT(denied, StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(denied, HasSubstr(allows)) << "so that the page can show why";
  EXPECT_THAT(ask("POST /v1/completions", origin + "Authorization: Bearer sesame\r\n", kBody),
              StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(ask("OPTIONS /v1/completions", origin, "a body"), StartsWith("HTTP/1.1 401"));
}

TEST_F(HttpClientsTest, ProbesAndOptions) {
  start();
  EXPECT_THAT(ask("GET /"), HasSubstr("/v1/models"));
  EXPECT_THAT(ask("HEAD /"), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(ask("GET /ping"), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(ask("GET /version"), HasSubstr(R"({"version":"0.)"));
  EXPECT_THAT(ask("OPTIONS *"), HasSubstr("Allow: GET, HEAD, POST, OPTIONS\r\n"));
  EXPECT_THAT(ask("OPTIONS /v1/models"), HasSubstr("Allow: GET, HEAD, OPTIONS\r\n"));
  EXPECT_THAT(ask("OPTIONS /v1/completions"), HasSubstr("Allow: POST, OPTIONS\r\n"));
  EXPECT_THAT(ask("OPTIONS /nowhere"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask("POST /chat/completions", "", "{}"),
              HasSubstr("the client's base URL must end with /v1; there are /v1/completions, /v1/chat/completions"));
  EXPECT_THAT(ask("GET /v1/embeddings"), HasSubstr("no /v1/embeddings here; there are"));
  EXPECT_THAT(ask("DELETE /v1/models"), StartsWith("HTTP/1.1 405"));
}

TEST_F(HttpClientsTest, AModelIsFoundByEachOfItsNames) {
  start({}, [](ModelCard& card) { name_model(card, "/models/tiny", {"org/tiny", "gpt-4"}); });
  for (const char* path : {"/v1/models/org/tiny", "/v1/models/org%2Ftiny", "/v1/models/org%2ftiny?x=1",
                           "/v1/models/org/tiny/", "/v1/models/gpt-4", "/v1/models/%2Fmodels%2Ftiny"})
    EXPECT_THAT(ask(cat("GET ", path)), StartsWith("HTTP/1.1 200 OK")) << path;
  EXPECT_THAT(ask("GET /v1/models/gpt-4"), HasSubstr(R"("id":"gpt-4")"));
  for (const char* path : {"/v1/models/tiny", "/v1/models/org%2", "/v1/models/org%zztiny"}) {
    const std::string missing = ask(cat("GET ", path));
    EXPECT_THAT(missing, StartsWith("HTTP/1.1 404")) << path;
    EXPECT_THAT(missing, HasSubstr("this engine serves")) << path;
  }
  const std::string all = ask("GET /v1/models/");
  const json list = json::parse(all.substr(all.find("\r\n\r\n") + 4))["data"];
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["id"], "org/tiny");
  EXPECT_EQ(list[1]["id"], "gpt-4");
  EXPECT_THAT(ask("POST /v1/completions", "", R"({"model": "gpt-4", "prompt": [1], "max_tokens": 3})"),
              HasSubstr(R"("model":"org/tiny")"));
}

TEST_F(HttpClientsTest, ABodyInACodingIsRefusedByItsName) {
  start();
  const std::string refused = ask("POST /v1/completions", "Content-Encoding: gzip\r\n", "\x1f\x8b\x08");
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 415"));
  EXPECT_THAT(refused, HasSubstr("Content-Encoding: expected none, found gzip"));
  EXPECT_THAT(ask("POST /v1/completions", "Content-Encoding: identity\r\n", kBody), StartsWith("HTTP/1.1 200 OK"));
}

// ApacheBench's: it waits for the end of the connection unless the answer says that it is kept.
TEST_F(HttpClientsTest, AClientOfHttp10IsToldThatTheConnectionIsKept) {
  start();
  RawConnection client(server_->url());
  for (int i = 0; i < 2; ++i) {
    client.send(completion_of(kBody, "Connection: Keep-Alive\r\n", "1.0"));
    EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Connection: keep-alive\r\n"));
    client.read_until("}}");
  }
  client.send(completion_of(kBody, "", "1.0"));
  const std::string last = client.read_to_end();
  EXPECT_THAT(last, HasSubstr("Connection: close\r\n"));
}

TEST_F(HttpClientsTest, ARequestThatIsCutIsAnswered) {
  start();
  for (const char* text :
       {"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{}", "GET /v1/models HTTP/1.1\r\nHo",
        "POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}"}) {
    RawConnection client(server_->url());
    client.send(text);
    client.shut_sending();
    const std::string refused = client.read_to_end();
    EXPECT_THAT(refused, StartsWith("HTTP/1.1 400")) << text;
    EXPECT_THAT(refused, HasSubstr("the request is cut")) << text;
  }
}

TEST_F(HttpClientsTest, AnUpgradeIsLeftAloneAndHttp2IsRefused) {
  start();
  RawConnection java(server_->url());
  java.send(
      completion_of(kBody, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIA\r\n"));
  EXPECT_THAT(java.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 200 OK"));
  java.read_until("}}");
  java.send(completion_of(kBody));
  EXPECT_THAT(java.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 200 OK"));
  RawConnection two(server_->url());
  two.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  EXPECT_THAT(two.read_to_end(), StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpClientsTest, AnyHostAndAWholeUrlAndChunksAreTaken) {
  start();
  for (const char* host : {"[::1]:8000", "localhost", "engine.internal:80"}) {
    RawConnection client(server_->url());
    client.send(completion_of(kBody, std::string("Host: ") + host + "\r\nConnection: close\r\n"));
    EXPECT_THAT(client.read_to_end(), StartsWith("HTTP/1.1 200 OK")) << host;
  }
  EXPECT_THAT(ask("GET http://127.0.0.1/v1/models"), StartsWith("HTTP/1.1 200 OK"));
  RawConnection pipelining(server_->url());
  const std::string chunks = "POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"prompt\r\n";
  pipelining.send(chunks + "18\r\n\": [1], \"max_tokens\": 3}\r\n0\r\n\r\n" +
                  completion_of(R"({"prompt": [1], "max_tokens": 3, "stream": true})") +
                  "GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string all = pipelining.read_to_end();
  const std::size_t whole = all.find("\"length\""), stream = all.find("[DONE]"), models = all.find("max_model_len");
  EXPECT_LT(whole, stream);
  EXPECT_LT(stream, models);
  EXPECT_NE(models, std::string::npos);
}

}  // namespace
}  // namespace bascule::ref
