"""Events of servers and JetStream: listened to, or read from a stream that stores them."""
