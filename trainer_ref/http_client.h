// A small HTTP/1.1 client: blocking calls with deadlines, and one kept connection to one server at a time, which no
// program that this one starts inherits.
//
// Threads: one at a time; cancel() from any. Plain http only: nothing here encrypts.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/trainer_ref/resolve.h>

namespace bascule::ref {

struct HttpResponse {
  int status = 0;  // 200, 404, …: any status counts as an answer, not as an error
  std::string body;
};

// Checks that `url` is http://HOST, http://HOST:PORT or either with a path; INVALID_ARGUMENT says what is wrong.
absl::Status check_url(std::string_view url);

class HttpClient {
 public:
  explicit HttpClient(Lookup lookup = system_lookup);
  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;
  ~HttpClient();

  // `url` is http://HOST:PORT/PATH. Blocks until the whole answer is here, at most `timeout`, including the lookup of
  // HOST. A connection that the server closed meanwhile is opened anew; a request that was sent is never sent twice.
  // Returns INVALID_ARGUMENT if it is no such URL; UNAVAILABLE if there is no such host, no server answers, or the
  // connection broke; DEADLINE_EXCEEDED; CANCELLED after cancel(); RESOURCE_EXHAUSTED if the answer is or will be
  // larger than 256 MiB, or if no memory is left for it.
  absl::StatusOr<HttpResponse> get(std::string_view url, absl::Duration timeout);
  absl::StatusOr<HttpResponse> post_json(std::string_view url, std::string_view json, absl::Duration timeout);

  // Whether the server may have seen any of the last request. If false, no server took it.
  bool was_sent() const;

  // Sends this key with later requests (Authorization: Bearer KEY), whatever server they go to. Empty: none.
  void authorize(std::string key);

  // Ends the call in progress and refuses every later one: for a program that is shutting down. Any thread.
  void cancel();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bascule::ref
