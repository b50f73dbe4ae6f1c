// Package cert keeps the certificate of a TLS listener: read from two files, and read again when they change, without a
// connection being dropped. A new pair that is not fit to serve changes nothing: the old one serves on.
package cert
