package org.apache.hadoop.conf;

/** The part of Hadoop's class that the log store uses. See java/README.md. */
public class Configuration {}
