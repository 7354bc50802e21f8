// Requests to the child process that has XLA: numbers and byte strings in order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

using Numbers = std::vector<int64_t>;

class Request {
public:
  explicit Request(const char *operation) : operation_(operation) {}
  Request &number(int64_t value);
  Request &numbers(const Numbers &values);
  Request &bytes(const void *data, size_t size);
  Request &text(const std::string &value) { return bytes(value.data(), value.size()); }

private:
  friend class Reply;
  std::string operation_, body_;
};

class Reply {
public:
  // Sends the request to the child, which is started by the first one, and waits. An error in
  // the child becomes an exception in Julia.
  explicit Reply(const Request &request);
  int64_t number();
  Numbers numbers();
  std::string text();
  void bytes_into(void *data);

private:
  std::string body_;
  size_t at_ = 0;
};

// An object in the child, which forgets it with the next request after the last holder.
class Held {
public:
  explicit Held(int64_t number) : number(number) {}
  Held(const Held &) = delete;
  ~Held();
  const int64_t number;
};
using HeldPointer = std::shared_ptr<Held>;
inline HeldPointer held(int64_t number) { return std::make_shared<Held>(number); }
