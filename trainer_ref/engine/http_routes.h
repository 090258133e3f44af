// What the engine's HTTP server answers to what: a table of paths, each with its method.
//
// Threads: that of the io_context.
#pragma once

#include <optional>
#include <random>
#include <span>
#include <string_view>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <bascule/trainer_ref/engine/api.h>
#include <bascule/trainer_ref/engine/engine.h>
#include <bascule/trainer_ref/engine/http_connection.h>
#include <bascule/trainer_ref/engine/http_message.h>

namespace bascule::ref {

class HttpRoutes {
 public:
  HttpRoutes(boost::asio::io_context& io, Engine& engine, ModelCard card);

  void drain() { draining_ = true; }  // what makes work is refused from now on, and /health says so
  bool draining() const { return draining_; }

  // Whether this is asked by what watches over engines, and answered though the server is full.
  static bool for_watchers(const HttpHeader& header);
  // The refusal that the header alone calls for: no such path, another method, shutting down.
  std::optional<HttpAnswer> refuse(const HttpHeader& header) const;

  using Reply = boost::asio::awaitable<std::optional<HttpAnswer>>;
  // None: the client hung up, or the route has written its answer itself; the connection is over.
  Reply respond(const HttpRequest& request, HttpConnection& connection);

 private:
  struct Route;
  static std::span<const Route> routes();
  static const Route* find(const HttpHeader& header);

  Reply complete(const HttpRequest& request, HttpConnection& connection);
  Reply models(const HttpRequest& request, HttpConnection& connection);
  Reply health(const HttpRequest& request, HttpConnection& connection);
  Reply metrics(const HttpRequest& request, HttpConnection& connection);
  Reply sleep(const HttpRequest& request, HttpConnection& connection);
  Reply wake_up(const HttpRequest& request, HttpConnection& connection);
  Reply is_sleeping(const HttpRequest& request, HttpConnection& connection);
  boost::asio::awaitable<HttpAnswer> rest(bool sleep, std::string_view target);
  boost::asio::awaitable<void> settle();

  boost::asio::io_context& io_;
  Engine& engine_;
  const ModelCard card_;
  std::mt19937_64 seeds_{std::random_device{}()};
  bool draining_ = false;
};

}  // namespace bascule::ref
