package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	neturl "net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The raw modes leave the client library out of the measured part: lines are encoded beforehand and written to a
// blocking TCP socket; of what comes back frames are counted. Streams and consumers are made with nats.go before it.

const (
	bufferBytes = 256 << 10
	writeBytes  = 64 << 10 // of one write where nothing is awaited
	ringLines   = 1 << 14
)

// wire is a bare connection; one goroutine uses it at a time.
type wire struct {
	file     *os.File // keeps the descriptor
	fd       int
	in       []byte
	from, to int // what was read and not yet taken is in[from:to]
}

func dial() *wire {
	at, err := neturl.Parse(*url)
	check(err, "url")
	conn, err := net.DialTimeout("tcp", at.Host, 10*time.Second)
	check(err, "connect")
	file, err := conn.(*net.TCPConn).File()
	check(err, "connect")
	check(conn.Close(), "connect")
	w := &wire{file: file, fd: int(file.Fd()), in: make([]byte, bufferBytes)} // Fd makes it blocking
	w.write([]byte("CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1}\r\n"))
	w.flush()
	return w
}

func (w *wire) close() { _ = w.file.Close() }

func (w *wire) write(data []byte) {
	for len(data) > 0 {
		n, err := syscall.Write(w.fd, data)
		if err == syscall.EINTR {
			continue
		}
		check(err, "write")
		data = data[n:]
	}
}

// read waits for more; it invalidates what take returned.
func (w *wire) read() {
	if w.from > 0 {
		w.to = copy(w.in, w.in[w.from:w.to])
		w.from = 0
	}
	for {
		n, err := syscall.Read(w.fd, w.in[w.to:])
		if err == syscall.EINTR {
			continue
		}
		if err == nil && n == 0 {
			err = fmt.Errorf("the server closed the connection")
		}
		check(err, "read")
		w.to += n
		return
	}
}

// take returns the next whole frame of what was read, as its first line and its headers with the payload; no line
// where more must be read. It answers PING and passes over INFO and +OK.
func (w *wire) take() (line, body []byte) {
	for {
		rest := w.in[w.from:w.to]
		end := bytes.IndexByte(rest, '\n')
		if end < 1 {
			return nil, nil
		}
		line = rest[:end-1]
		switch {
		case rest[0] == 'M' || rest[0] == 'H':
			begin, size := end+1, lastNumber(line)
			if len(rest) < begin+size+2 {
				return nil, nil
			}
			w.from += begin + size + 2
			return line, rest[begin : begin+size]
		case rest[0] == '-':
			check(fmt.Errorf("%s", line), "server")
		case bytes.Equal(line, []byte("PING")):
			w.write([]byte("PONG\r\n"))
		case bytes.Equal(line, []byte("PONG")):
			w.from += end + 1
			return line, nil
		}
		w.from += end + 1
	}
}

// next returns the next frame, and waits for it.
func (w *wire) next() (line, body []byte) {
	for {
		if line, body = w.take(); line != nil {
			return line, body
		}
		w.read()
	}
}

// flush waits until the server has read everything; nothing else may be on its way here.
func (w *wire) flush() {
	w.write([]byte("PING\r\n"))
	if line, _ := w.next(); line[1] != 'O' {
		check(fmt.Errorf("%s instead of PONG", line), "flush")
	}
}

func (w *wire) subscribe(subject string) {
	w.write([]byte("SUB " + subject + " 1\r\n"))
	w.flush()
}

// lastNumber returns the size with which the line of a message ends.
func lastNumber(line []byte) int {
	n, unit := 0, 1
	for i := len(line) - 1; i >= 0 && line[i] != ' '; i-- {
		n += int(line[i]-'0') * unit
		unit *= 10
	}
	return n
}

func pub(subject, reply string, data []byte) []byte {
	if reply != "" {
		reply += " "
	}
	return append([]byte("PUB "+subject+" "+reply+strconv.Itoa(len(data))+"\r\n"), append(data, "\r\n"...)...)
}

// ring is a number of encoded publishes, each with a reply of its own as clients have it, that are sent in a circle.
type ring struct {
	lines []byte
	width int // of one line
	at    int
}

// newRing returns publishes on subjects of one length, in turn; without any, on that of the stream.
func newRing(inbox string, subjects ...string) *ring {
	if len(subjects) == 0 {
		subjects = []string{*stream + ".data"}
	}
	r := &ring{}
	for i := range max(ringLines/len(subjects), 1) * len(subjects) {
		line := pub(subjects[i%len(subjects)], fmt.Sprintf("%s.%08d", inbox, i), payload())
		r.width = len(line)
		r.lines = append(r.lines, line...)
	}
	return r
}

// send writes the next n lines.
func (r *ring) send(w *wire, n int) {
	for n > 0 {
		k := min(n, len(r.lines)/r.width-r.at)
		w.write(r.lines[r.at*r.width : (r.at+k)*r.width])
		r.at = (r.at + k) % (len(r.lines) / r.width)
		n -= k
	}
}

// checkAck ends the program unless the payload is that of a publish that was stored.
func checkAck(line, body []byte) {
	if line[0] != 'M' || bytes.HasPrefix(body, []byte(`{"error"`)) {
		check(fmt.Errorf("%s %s", line, body), "ack")
	}
}

// pipelined publishes n messages with at most `outstanding` unacked and returns each one's time to its ack.
func (w *wire) pipelined(n, outstanding int, lines *ring) []time.Duration {
	type portion struct {
		last int // the number of the last message of one write
		at   time.Time
	}
	lat := make([]time.Duration, 0, n)
	var portions []portion
	for sent := 0; len(lat) < n; {
		if k := min(outstanding-(sent-len(lat)), n-sent); k > 0 {
			sent += k
			portions = append(portions, portion{sent, time.Now()})
			lines.send(w, k)
		}
		w.read()
		now := time.Now()
		for head, body := w.take(); head != nil; head, body = w.take() {
			checkAck(head, body)
			if len(lat) == portions[0].last {
				portions = portions[1:]
			}
			lat = append(lat, now.Sub(portions[0].at))
		}
	}
	return lat
}

// waiting publishes one message after the other's ack, until the publishers together have sent -msgs.
func (w *wire) waiting(sent *atomic.Int64, lines *ring) (lat []time.Duration) {
	for sent.Add(1) <= int64(*msgs) {
		t := time.Now()
		lines.send(w, 1)
		checkAck(w.next())
		lat = append(lat, time.Since(t))
	}
	return lat
}

// publishing runs n publishers at once, each on a connection with an inbox of its own, on the subjects of newRing.
func publishing(name string, n int, publish func(w *wire, lines *ring) []time.Duration, subjects ...string) result {
	var all sync.WaitGroup
	lats := make([][]time.Duration, n)
	wires := make([]*wire, n)
	rings := make([]*ring, n)
	for p := range n {
		wires[p] = dial()
		defer wires[p].close()
		inbox := fmt.Sprintf("_INBOX.load%d.%d", os.Getpid(), p)
		wires[p].subscribe(inbox + ".*")
		rings[p] = newRing(inbox, subjects...)
	}
	begin := start()
	for p := range n {
		all.Go(func() { lats[p] = publish(wires[p], rings[p]) })
	}
	all.Wait()
	r := finish(name, *msgs, begin.stop(), slices.Concat(lats...))
	r.Publishers = n
	return r
}

func rawAsync(ctx context.Context, name string, n int) result {
	nc := connect()
	defer nc.Close()
	create(ctx, open(nc))
	r := publishing(name, n, func(w *wire, lines *ring) []time.Duration { return w.pipelined(*msgs/n, *window, lines) })
	r.Window = *window
	return r
}

func rawSync(ctx context.Context, name string, n int) result {
	nc := connect()
	defer nc.Close()
	create(ctx, open(nc))
	var sent atomic.Int64
	return publishing(name, n, func(w *wire, lines *ring) []time.Duration { return w.waiting(&sent, lines) })
}

// rawStreams publishes to many streams in turn; their creation and deletion are not counted.
func rawStreams(ctx context.Context) result {
	nc := connect()
	defer nc.Close()
	js := open(nc)
	names := make([]string, *streams)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%06d", *stream, i)
		createFor(ctx, js, names[i], names[i])
	}
	r := publishing("raw-js-streams", 1, func(w *wire, lines *ring) []time.Duration {
		return w.pipelined(*msgs, *window, lines)
	}, names...)
	r.Window = *window
	for _, name := range names {
		check(js.DeleteStream(ctx, name), "delete stream")
	}
	return r
}

// pour writes -msgs lines as fast as the socket takes them.
func (w *wire) pour(line []byte) {
	several := max(1, writeBytes/len(line))
	lines := bytes.Repeat(line, several)
	for left := *msgs; left > 0; left -= several {
		w.write(lines[:min(left, several)*len(line)])
	}
}

func rawCorePub() result {
	w := dial()
	defer w.close()
	line := pub("load.core", "", payload())
	begin := start()
	w.pour(line)
	w.flush()
	return finish("raw-core-pub", *msgs, begin.stop(), nil)
}

func rawCorePubSub() result {
	in, out := dial(), dial()
	defer in.close()
	defer out.close()
	in.subscribe("load.core")
	line := pub("load.core", "", payload())
	begin := start()
	go func() {
		out.pour(line)
		out.flush()
	}()
	for range *msgs {
		in.next()
	}
	return finish("raw-core-pubsub", *msgs, begin.stop(), nil)
}

func rawCoreRequest() result {
	in, out := dial(), dial()
	defer in.close()
	defer out.close()
	in.subscribe("load.echo")
	out.subscribe("_INBOX.asked")
	ask, answer := pub("load.echo", "_INBOX.asked", payload()), pub("_INBOX.asked", "", payload())
	lat := make([]time.Duration, 0, *msgs)
	begin := start()
	go func() {
		for range *msgs {
			in.next()
			in.write(answer)
		}
	}()
	for range *msgs {
		t := time.Now()
		out.write(ask)
		out.next()
		lat = append(lat, time.Since(t))
	}
	return finish("raw-core-request", *msgs, begin.stop(), lat)
}

// puller reads a pull consumer over a wire.
type puller struct {
	*wire
	consumer string
	acks     []byte // of messages that were taken, written at once; not kept where the consumer wants none
	acking   bool
}

// pulling makes a stream with -msgs messages, a consumer for it, and a wire with the inbox of its requests.
func pulling(ctx context.Context, acking bool) (*puller, jetstream.Consumer, func()) {
	nc := connect()
	s := fill(ctx, nc)
	var c jetstream.Consumer
	if acking {
		c = consumer(ctx, s)
	} else {
		var err error
		c, err = s.CreateConsumer(ctx, jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckNonePolicy, MaxDeliver: 1, MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute,
		})
		check(err, "create consumer")
	}
	p := &puller{wire: dial(), consumer: c.CachedInfo().Name, acking: acking}
	p.subscribe("_INBOX.pulled")
	return p, c, func() { p.close(); nc.Close() }
}

func (p *puller) request(n int) {
	body, err := json.Marshal(map[string]any{"batch": n, "expires": 30 * time.Second})
	check(err, "request")
	p.write(pub("$JS.API.CONSUMER.MSG.NEXT."+*stream+"."+p.consumer, "_INBOX.pulled", body))
}

// arrive waits for messages and returns how many of them there are; their acks are written.
func (p *puller) arrive() (n int) {
	p.read()
	p.acks = p.acks[:0]
	for line, _ := p.take(); line != nil; line, _ = p.take() {
		if line[0] != 'M' {
			check(fmt.Errorf("%s", line), "fetch")
		}
		n++
		if p.acking { // MSG subject sid reply size
			words := bytes.Fields(line)
			p.acks = append(append(append(p.acks, "PUB "...), words[3]...), " 4\r\n+ACK\r\n"...)
		}
	}
	p.write(p.acks)
	return n
}

func rawFetch(ctx context.Context) result {
	p, c, done := pulling(ctx, true)
	defer done()
	var lat []time.Duration
	begin := start()
	for left := *msgs; left > 0; {
		t := time.Now()
		n := min(*batch, left)
		left -= n
		p.request(n)
		for n > 0 {
			n -= p.arrive()
		}
		lat = append(lat, time.Since(t))
	}
	settled(ctx, c)
	return finish("raw-js-fetch", *msgs, begin.stop(), lat)
}

// rawConsume keeps between half of -batch and all of it requested, as Consume does.
func rawConsume(ctx context.Context, name string, acking bool) result {
	p, c, done := pulling(ctx, acking)
	defer done()
	begin := start()
	requested, asked := 0, 0
	for got := 0; got < *msgs; {
		if n := min(*batch-requested, *msgs-asked); n > 0 && requested <= *batch/2 {
			p.request(n)
			requested += n
			asked += n
		}
		n := p.arrive()
		got += n
		requested -= n
	}
	if acking {
		settled(ctx, c)
	}
	return finish(name, *msgs, begin.stop(), nil)
}
