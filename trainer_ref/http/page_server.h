// A small HTTP server on its own thread, for monitoring a program: it answers GET and HEAD of a few paths with the
// current result of a function.
//
// Threads: made and destroyed on one thread; pages are called on the server's. Destruction ends answers in progress.
//
// It has at most 64 connections. A new one replaces the one that has sent nothing for longest, so that clients that
// connect and send nothing cannot keep others out.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace bascule::ref {

class PageServer {
 public:
  struct Page {
    int status = 200;
    std::string body;
    std::string type = "application/json";
  };
  using Pages = std::map<std::string, std::function<Page()>, std::less<>>;  // by path, as "/metrics"

  // Binds `address`, the HOST:PORT of `flag`, and serves. Returns INVALID_ARGUMENT if there is no such address,
  // UNAVAILABLE if it cannot be bound. `program` is its name in answers. `idle_timeout` bounds the arrival of a whole
  // request, including the pause before it.
  static absl::StatusOr<std::unique_ptr<PageServer>> listen(std::string_view flag, std::string_view address,
                                                            std::string program, Pages pages,
                                                            absl::Duration idle_timeout = absl::Seconds(10));
  ~PageServer();

  const std::string& url() const;  // "http://127.0.0.1:9400", with the port that was chosen; any thread

 private:
  struct Impl;
  explicit PageServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace bascule::ref
