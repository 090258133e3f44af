// A small HTTP server on a thread of its own, for what watches a program: it answers GET and HEAD of a few paths with
// what a function says at that moment.
//
// Threads: made and destroyed on one; pages are called on the server's own. Destruction ends what is being answered.
//
// It has no more than 64 connections. A new one takes the place of that which has asked nothing for longest: clients
// that connect and say nothing keep no other one out.
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

  // Binds `address`, HOST:PORT as `flag` was told, and serves. INVALID_ARGUMENT: there is no such address; UNAVAILABLE:
  // it cannot be bound. `program`: its name, in answers. `idle_timeout`: for a whole request to arrive, the pause
  // before it included.
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
